"""From a request to the lanes that carry it out: its form, the offsets that it names, its plan, its claim."""
