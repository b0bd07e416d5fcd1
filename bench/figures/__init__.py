"""What is measured, a file a theme: ``measure(report, scale)`` runs a Loom of its own and adds its figures."""
