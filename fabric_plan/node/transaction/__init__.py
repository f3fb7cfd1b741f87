"""One node's transaction: files and live state go to a trial that a reboot forgets, then stay, or go back."""
