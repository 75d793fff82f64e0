//! Whole laboratories, which need the rights to make namespaces. Without them, or without a program, a test says so and passes.
