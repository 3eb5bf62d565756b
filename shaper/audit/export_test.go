package audit

// WithBounds is the log with other bounds in bytes.
func (l *Log) WithBounds(share, most int) *Log {
	b := l.book
	b.share, b.most = share, most
	return &Log{l.redis, l.timeout, b}
}
