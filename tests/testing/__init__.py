"""What tests are written with, tested: the held engine, its control address, the pytest plugin, the explorer."""
