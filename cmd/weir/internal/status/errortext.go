package status

// ErrorText returns the text of an error in a document; "" if there is none.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
