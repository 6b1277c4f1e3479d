"""The bytes of one store at one version, from the files of each state store provider."""
