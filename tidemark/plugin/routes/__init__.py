"""The routes of the pages, a module for each page: its address, and what it asks the servers for."""
