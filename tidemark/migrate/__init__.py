"""Moving positions: importing those of other tools, exporting a stream's own."""
