"""Mutual information: estimates that state what they are."""
