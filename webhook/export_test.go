package webhook

import "time"

// ExpireTokens makes all cached tokens due for renewal.
func (c *Client) ExpireTokens() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	for _, e := range c.tokens.entries {
		<-e.turn
		e.renewAt = time.Now()
		e.turn <- struct{}{}
	}
}
