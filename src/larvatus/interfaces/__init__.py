"""How people reach Larvatus: Python functions, commands, the server, its client, the studio."""
