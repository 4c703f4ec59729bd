"""One life of a stream's driver: from its generation's slot to the last one that it writes."""
