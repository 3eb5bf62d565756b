package audit

// WithBounds is the log with other bounds in bytes, the same of each class.
func (l *Log) WithBounds(share, most int) *Log {
	b := l.book
	b.changed = bounds{share, most}
	b.nothing = b.changed
	return &Log{l.redis, l.timeout, b}
}
