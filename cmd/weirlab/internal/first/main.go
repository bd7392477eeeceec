// Command first is what the lab starts as the first process of its keeper and of every machine, and
// as their agents: package inside and nothing else. It is a command of its own so that it is small,
// for it goes into every qemu box's memory, and so that no other code of the lab can break it.
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
