module agents

go 1.26
