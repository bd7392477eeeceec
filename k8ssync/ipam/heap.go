package ipam

// heap keeps the least of its items at hand. The zero heap lacks less.
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
}

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	for i := len(h.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(h.items[i], h.items[up]) {
			return
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

// top gives the least item; there must be one.
func (h *heap[T]) top() T { return h.items[0] }

// pop removes the least item; there must be one.
func (h *heap[T]) pop() T {
	out, n := h.items[0], len(h.items)-1
	h.items[0] = h.items[n]
	var zero T
	h.items[n] = zero
	h.items = h.items[:n]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && h.less(h.items[down], h.items[least]) {
				least = down
			}
		}
		if least == i {
			return out
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}
