"""Domain knowledge beside the message: library (YAML files), match (TF-IDF), render (the text the model reads)."""
