"""The sinks, one folder for each type: settings, layout, plain reader and sweep."""
