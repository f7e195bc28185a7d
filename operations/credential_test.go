package operations

import "testing"

// TestCredentialsByAnyName: headers with credentials are recognized in every spelling, as by the schema (see the tests
// of the custom resources).
func TestCredentialsByAnyName(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"Authorization": true, "AUTHORIZATION": true, "x_authorization": true, "Proxy_Authorization": true,
		"Set-Cookie": true, "cookie2": true,
		"X-Api-Key": true, "X_Api_Key": true, "apikey": true, "Token": true, "X-AuthToken": true, "X-Access-Key": true,
		"Private-Token":        true,
		"X-Amz-Security-Token": true, "X-Forwarded-Client-Cert": true, "Www-Authenticate": true, "Password": true,
		"X-Request-Id": false, "Idempotency-Key": false, "X-Author": false, "X-Tokens": false, "X-Key": false,
		"Content-Type": false,
	}
	for name, want := range tests {
		if got := carriesCredentials(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
