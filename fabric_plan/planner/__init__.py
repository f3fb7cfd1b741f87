"""From a `Fabric` to a `Plan`: addresses, routes, relay paths, rules, markers, driver values, NCCL."""
