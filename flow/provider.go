package flow

// Provider is a value that fibers find by its type. Provide makes it.
type Provider struct{ value any }

// box keeps the static type of a value. Use then finds an interface only under its own type, not under the types that
// implement it.
type box[T any] struct{ value T }

// Provide makes value available to Use, as a T, on an engine, a flow or a fiber.
func Provide[T any](value T) Provider { return Provider{box[T]{value}} }

func find[T any](providers []Provider) (T, bool) {
	for _, p := range providers {
		if b, ok := p.value.(box[T]); ok {
			return b.value, true
		}
	}
	var zero T
	return zero, false
}
