"""The project itself: layers, what is published, which test shows which case, how time is measured."""
