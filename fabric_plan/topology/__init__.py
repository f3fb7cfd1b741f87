"""From cables to a shape: pair, line, triangle, ring, switched, or a refusal that says what to plug where."""
