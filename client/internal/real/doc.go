// Package real tests source, store and client together on a real control plane, where bookmarks take a minute and other
// resources move the version.
package real
