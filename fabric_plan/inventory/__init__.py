"""From a YAML file to a `Fabric`, or to every reason why not."""
