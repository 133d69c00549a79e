"""Writing a text for a text: any task as text to text."""
