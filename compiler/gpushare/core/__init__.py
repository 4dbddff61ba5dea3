"""What every other package uses: value types, findings, units, the one YAML writer, the paths of data files."""
