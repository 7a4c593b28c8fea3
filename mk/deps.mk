# What is not in the repository and not a Debian package: yyjson's two files and the Rust text library.
