package harness

// SoakSeed is the environment variable with the seed of random operations: the same seed gives the same operations.
const SoakSeed = "SOAK_SEED"
