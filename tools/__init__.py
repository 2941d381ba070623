"""Development tools that are run by hand or in a slow tier of continuous integration."""
