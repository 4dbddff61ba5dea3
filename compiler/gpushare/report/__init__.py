"""What the commands print: text, tables, HTML pages and documents, from values. Reads no file, and knows no option."""
