"""Many simulated nodes against a real control plane: how rollouts are paced, and what they cost the API server."""
