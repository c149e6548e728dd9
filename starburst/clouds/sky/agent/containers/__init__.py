"""Tasks with an image: the engine of the machine, the image, the container, and what is left of it."""
