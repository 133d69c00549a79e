"""An evaluation suite: many measurements of one model, each by a public function, in one table."""
