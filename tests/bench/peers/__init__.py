"""What people would use instead, each as small as it can be written. They run from a folder of their own."""
