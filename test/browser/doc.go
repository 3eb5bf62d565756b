// Package browser looks at the console with a browser, as an operator does. It is a module of its own, so that the driver of the browser is no
// dependency of Tundish.
package browser
