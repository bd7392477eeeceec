// Command first is the first process of the lab's keeper and of every machine, and their agent. It
// runs package inside, and never anything else. It is a separate command to be small, as every qemu
// box has it in memory, and to be independent of the other code of the lab.
package main

import (
	"fmt"
	"os"

	"weir/cmd/weirlab/internal/inside"
)

func main() {
	err := inside.Run(os.Args[1:]) // returns only when something is wrong
	fmt.Fprintln(os.Stderr, "weirlab:", err)
	os.Exit(1)
}
