"""Pictures of structures in text: elements, and words in a row with what is above and below them."""
