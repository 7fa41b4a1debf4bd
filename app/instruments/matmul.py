"""A product of two small tables, one number a press. Settings: rows, inner, columns."""

import lesson_draw as draw
from dom import button, make


def _table(rows, columns, label):
    table = make("table", cls="matrix", aria_label=label)
    cells = []
    for _ in range(rows):
        line = make("tr")
        row = [make("td") for _ in range(columns)]
        for cell in row:
            line.appendChild(cell)
        table.appendChild(line)
        cells.append(row)
    return table, cells


def build(place, settings):
    rows, inner, columns = [int(draw.numbers(settings, name, [usual])[0]) for name, usual in (("rows", 2), ("inner", 3), ("columns", 2))]
    a = [[(3 * i + k) % 5 - 1 for k in range(inner)] for i in range(rows)]
    b = [[(k * 2 + j + 1) % 4 - 1 for j in range(columns)] for k in range(inner)]
    tables = make("div", cls="matrices")
    made = [_table(*sizes) for sizes in ((rows, inner, "First table"), (inner, columns, "Second table"), (rows, columns, "Product"))]
    for sign, (table, _) in zip(("", "×", "="), made):
        if sign:
            tables.appendChild(make("span", sign, "sign"))
        tables.appendChild(table)
    place.appendChild(tables)
    (_, first), (_, second), (_, product) = made
    for table, values in ((first, a), (second, b)):
        for row, numbers in zip(table, values):
            for cell, number in zip(row, numbers):
                cell.textContent = str(number)
    say = draw.said(place)
    state = {"at": 0}

    def lit(i, j):
        for k in range(inner):
            first[i][k].className = "lit"
            second[k][j].className = "lit"

    def dark():
        for table in (first, second, product):
            for row in table:
                for cell in row:
                    cell.className = ""

    def step(event=None):
        dark()
        if state["at"] == rows * columns:
            state["at"] = 0
            for row in product:
                for cell in row:
                    cell.textContent = ""
            say("Empty again. Press Step for the first number.")
            go.textContent = "Step"
            return
        i, j = divmod(state["at"], columns)
        lit(i, j)
        terms = [str(a[i][k]) + " × " + str(b[k][j]) for k in range(inner)]
        total = sum(a[i][k] * b[k][j] for k in range(inner))
        product[i][j].textContent = str(total)
        product[i][j].className = "lit"
        say("Row " + str(i + 1) + ", column " + str(j + 1) + ": " + " + ".join(terms) + " = " + str(total) + ".")
        state["at"] += 1
        if state["at"] == rows * columns:
            go.textContent = "Begin again"

    go = button("Step", step)
    row = make("div", cls="row")
    row.appendChild(go)
    place.appendChild(row)
    say("Press Step: each press computes one number of the product.")
