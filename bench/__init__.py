"""Measurements of speed and quality beside public peers: ./build.sh bench. Nothing here asserts; numbers are recorded."""
