package share

// What an object costs those that handle it, in bytes of an ordinary one: the API server decodes, copies, compares and
// encodes it value by value and path by path, for each write and for each watch, of which others wait for their turn.
// Measured with version 1.35 of it: a value takes as long as 64 bytes of a string, and each level above it as long as
// another byte.
const (
	perValue, perLevel = 64, 1
	// ordinaryValues and ordinaryLevels are what an Operation has without being a special one.
	ordinaryValues, ordinaryLevels = 512, 16
)

// Effort returns what an object in JSON costs. It reads what is no JSON, too, and takes time in proportion to the
// length.
func Effort(raw []byte) int {
	values, levels, depth := 0, 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			values++
			levels += max(0, depth-ordinaryLevels)
		case '}', ']':
			depth--
		case ',':
			values++
			levels += max(0, depth-ordinaryLevels)
		}
	}
	return len(raw) + perValue*max(0, values-ordinaryValues) + perLevel*levels
}
