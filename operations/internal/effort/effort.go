// Package effort prices objects by the work that the API server has with them.
package effort

// Price of an object, in bytes of an ordinary one. The API server decodes, copies, compares and encodes an object value
// by value and path by path, for each write and each watch, while others wait. Measured with version 1.35: a value
// takes as long as 64 bytes of a string, and each level above it as long as another byte.
const (
	perValue, perLevel = 64, 1
	// ordinaryValues and ordinaryLevels are the values and levels of an ordinary Operation.
	ordinaryValues, ordinaryLevels = 512, 16
)

// Of returns the price of an object in JSON. It accepts invalid JSON, too. Its time is linear in the length.
func Of(raw []byte) int {
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
