"""The harness: environments, servers, measurements and reports. It knows no peer by more than its roster entry."""
