"""Groups of settings, which `service.settings` joins."""
