"""Maps of a word: its instances in a corpus as points in the plane (Fig. 11.7 of the chapter)."""
