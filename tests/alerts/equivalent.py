def reason_for(what: str) -> str:
    return ""
