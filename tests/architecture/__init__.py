"""The shape of the house: walls, names, plugin folder, links, deployment files."""
