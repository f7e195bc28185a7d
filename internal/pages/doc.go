// Package pages serves the pages of a console to authorized readers. The library's console (package console) and the
// operations service (package operations/console) declare pages; this package reads requests, checks rights, renders
// and updates. A declared page cannot omit a check:
//
//   - Site serves a Page after it has identified the reader and checked the right. It does so for each update, too.
//   - Site serves an Action after it has also checked the token of the form.
//   - All responses have a strict Content-Security-Policy. Requests of other sites are refused.
//   - The answers for a missing object and for a hidden one are the same (ErrNothing).
//
// The parts are Sessions (cookies and logouts), Readers (identity and rights), Render (templates), Live (updates of
// open pages) and Site, which connects them. A Section is a group of pages that comes from outside of the library.
package pages
