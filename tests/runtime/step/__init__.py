"""The step: operators against plain Python, and what one attempt leaves behind."""
