"""The paper's tables: the values it prints, our records beside them, and how they are reproduced."""
