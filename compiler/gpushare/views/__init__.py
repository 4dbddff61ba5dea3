"""What the commands print: text, tables, HTML pages and documents, from values. Reads and writes nothing, and knows no option."""
