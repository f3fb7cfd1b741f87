"""Look at live nodes, send bounded traffic where asked, and say what was seen. The checks themselves are in
`fabric_plan.checks`.
"""
